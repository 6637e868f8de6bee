"""`ottla secure`: certificates, users and configuration files of a secured cluster.

layout.py          the files of the directory
certificates.py    the certificate authority and the certificates of brokers
texts.py           the text of server.properties and of the clients' profiles
init.py            `ottla secure init`
proof.py           the start of a broker that proves that they fit together
renew.py           `ottla secure renew`
users.py           `ottla secure user`
command.py         the commands
"""
