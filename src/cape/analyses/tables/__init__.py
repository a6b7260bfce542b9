"""Many tables of counts at once, from one release with optimal noise, and what can be read off them.

One table alone is a `ContingencyTable` (`describe`); synthetic rows from tables are `synthetic`.
"""
