"""What every package may use: errors, validation of arguments, array types, files, decoding of documents,
packing of integers into bytes, Unix sockets and the user at their other end, lazy imports.

Not here: anything that knows of privacy, tables or sites. It imports no other package of ours.
"""
