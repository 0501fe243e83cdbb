"""A NumPy script of which one line was changed, the import: the beats in a noisy record, and the curve of one of them.

python examples/arrays/unchanged.py
"""

import girih.array as np

COUNT, LENGTH = 6000, 60.0  # samples, seconds

time = np.linspace(0, LENGTH, COUNT, endpoint=False) + LENGTH / COUNT / 2  # so that none is on an edge of a part
noise = np.modf(np.sin(np.arange(COUNT) * 12.9898) * 43758.5453)[0]
record = 3 + 0.05 * time + 0.6 * np.sin(2 * np.pi * 1.25 * time) + 0.3 * np.cos(2 * np.pi * 3.5 * time) + 0.4 * noise
record = np.where(np.arange(COUNT) % 997 == 0, 40.0, record)  # a few samples are broken

# Without the broken samples, and without the trend.
low, high = np.percentile(record, [1, 99])
known = (record >= low - 1) & (record <= high + 1)
record = np.interp(time, time[known], record[known])
powers = np.vander(time, 2)
trend = powers @ np.linalg.lstsq(powers, record, rcond=None)[0]
record = record - trend
print(
    f"{np.count_nonzero(~known)} broken samples, {float(trend[0]):.2f} at the start, {float(trend[-1]):.2f} at the end"
)

# The strongest beats.
spectrum = np.abs(np.fft.rfft(record * np.hanning(COUNT))) ** 2
frequencies = np.fft.rfftfreq(COUNT, LENGTH / COUNT)
is_peak = (spectrum[1:-1] > spectrum[:-2]) & (spectrum[1:-1] > spectrum[2:])
peaks = np.flatnonzero(is_peak) + 1
beats = frequencies[peaks[np.argsort(spectrum[peaks])[::-1][:2]]]
print("beats per second:", np.round(beats, 2))

# The mean curve of the first one, over its phase.
phase = (time * beats[0]) % 1.0
part = np.digitize(phase, np.linspace(0, 1, 9)) - 1
curve = np.bincount(part, weights=record, minlength=8) / np.bincount(part, minlength=8)
print("its curve:", np.round(curve, 2))

# What is left.
rest = record - np.take(curve, part)
counts, edges = np.histogram(rest, bins=5, range=(-1, 1))
print("the rest:", counts, "of which the standard deviation is", round(float(np.std(rest, ddof=1)), 3))
