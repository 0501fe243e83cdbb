"""What is kept on disk, in one form: a manifest that is data, bytes with checksums, and replacement in one step.

`durable` touches the file system, `sealed` is JSON with a checksum, `manifest` says which arrays there are and where,
`stored` writes and reads them, `places` does so at URLs. A face brings the arrays by name, and what else is to be said.
"""
