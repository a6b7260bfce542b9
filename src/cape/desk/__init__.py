"""The desk: pages in a browser for a site's stewards, and for a coordinator. See `cape.desk.app`.

What people decide here is carried out by `cape.site.admin` and `cape.coordinator`, as the commands do it:
no rule about studies, budgets or keys belongs into this package.
"""
