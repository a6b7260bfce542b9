"""Many tables of counts at once, from one release with optimal noise, and what can be read off them.

Not here: one table alone (`ContingencyTable` in `describe`), and rows made from tables (`synthetic`).
"""
