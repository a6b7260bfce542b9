"""What command line and desk share: runs, folders of results, progress, reports, certificates, sentences.

Nothing here prints or serves: it returns texts and data, and the command line and the desk show them.
"""
