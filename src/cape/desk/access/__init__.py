"""Who may do what at the desk: links that log in, OpenID Connect, roles, sessions, forged requests, limits,
and the trail of decisions.

Not here: who may approve a study, which the site's policy says (`site/decide`).
"""
