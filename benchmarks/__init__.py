"""Every figure that girih claims, one command each: `python -m benchmarks.NAME [--check] [--quick] [--json]`.

first_use          what a user waits for at first, beside importing torch
weight_sizes       bytes of weights, gradients and history beside Tofu's Table 2
partition_search   seconds to search for 8 workers beside Tofu's Table 1
partition_quality  communication of each kind of plan, beside Tofu's Figure 10
capped_quality     plans under a memory limit, beside brute force, and their gaps
capped_planning    planning under a memory limit: walks, programs, task graphs, CPU seconds
planning_time      from a PyTorch step to a plan, beside an ILP planner
many_devices       64 and 1,024 devices
simulate_speed     simulating a changed program anew, beside FlexFlow's Table 3.4
same_training      losses and state of the workers beside one device's
worker_memory      peak memory of each worker beside its fair share
worker_overhead    what a worker takes for itself
rule_proofs        verdicts on rules of a file, beside TASO's seconds with Z3
rule_soundness     proved rules on random shapes and tensors
operator_coverage  operators that are described
array_api          tests of the array API standard that girih.array passes

`python -m benchmarks` runs all and prints their last lines. `--check`: exit code 1 where the floor is missed.
"""
