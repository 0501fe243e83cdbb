"""All choices that are judged by the simulated Program."""
