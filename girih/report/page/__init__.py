"""One self-contained HTML file that lets a person see a plan; nothing is loaded from a network.

Python prepares the data (`data.py` and what it calls); `static/` holds the page, its style and its scripts, which draw
it. BokehJS draws the charts over time; tiles, bars and tables are plain HTML and SVG.
"""

from girih.report.page.assemble import page, write_page
from girih.report.page.library import MissingLibraryError

__all__ = ["MissingLibraryError", "page", "write_page"]
