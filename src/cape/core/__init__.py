"""What every package may use: errors, checks of arguments, types of arrays, files, documents, sockets.

Nothing here knows of privacy, tables or sites, and nothing here imports another package of ours.
"""
