def refute(rule, tries):
    return None
