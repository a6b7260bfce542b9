"""What the command line and the desk share: runs of studies, folders of results, progress, reports, privacy
certificates, the guarantee in words.

Not here: printing and serving. It returns texts and data, which the command line and the desk show.
"""
