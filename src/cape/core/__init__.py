"""What every package may use: errors, checks of arguments, types of arrays, files, documents, packed bytes,
Unix sockets, lazy imports.

Not here: anything that knows of privacy, tables or sites. It imports no other package of ours.
"""
