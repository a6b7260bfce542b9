"""The desk: pages in a browser for a site's stewards and for a coordinator (an extra); its server, and the
processes that it starts.

Not here: rules about studies, budgets or keys. What people decide here is carried out by `cape.site.admin`
and `cape.coordinator`, as commands do it.

`cape.desk.app` is where to start reading.
"""
