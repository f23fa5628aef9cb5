#!/bin/sh
# Makes the certificates in etcd/, which tests of TLS towards etcd use: a CA, a server and a client that it signed,
# a server under another name, and a client of a CA that etcd does not trust. They are valid for 100 years.
# The server's certificate is for clients too: with --client-cert-auth etcd's JSON gateway shows it to etcd.
set -eu
cd "$(dirname "$0")/etcd"

key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"; }

ca() { # name
    key "$1.key"
    openssl req -x509 -new -key "$1.key" -days 36500 -subj "/CN=$1" -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

signed() { # name, CA, usages, subjectAltName
    key "$1.key"
    printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' "$3" > extensions
    printf 'subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n%s\n' "${4:+subjectAltName=$4}" >> extensions
    openssl req -new -key "$1.key" -subj "/O=semel tests" |
        openssl x509 -req -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days 36500 -extfile extensions -out "$1.pem"
}

ca ca
ca other-ca
signed server ca serverAuth,clientAuth DNS:localhost,IP:127.0.0.1
signed renamed ca serverAuth,clientAuth DNS:etcd.example
signed client ca clientAuth ""
signed stranger other-ca clientAuth ""
openssl pkcs8 -topk8 -v2 aes-256-cbc -passout pass:secret -in client.key -out client-encrypted.key
rm -f ca.key other-ca.key ./*.srl extensions
