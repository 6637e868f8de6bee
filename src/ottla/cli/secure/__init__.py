"""`ottla secure`: certificates, users and configuration files of a secured cluster.

layout.py          the files of the directory
certificates.py    the certificate authority and the certificates of brokers
texts.py           the text of server.properties and of the clients' profiles
init.py            `ottla secure init`
proof.py           the start of a broker that proves that they fit together
renew.py           `ottla secure renew`
users.py           `ottla secure user`; its ACLs: permissions.py
explain.py         `ottla secure explain`
check.py           `ottla secure check`, which collects; findings.py decides
policy.py          properties of brokers that decide on access
command.py         the commands; those that change nothing: inspection.py
"""
