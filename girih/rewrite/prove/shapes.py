def shaped(rule):
    return rule, None
