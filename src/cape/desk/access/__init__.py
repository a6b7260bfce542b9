"""Who may do what at the desk: login, roles, sessions, limits, and the trail of decisions."""
