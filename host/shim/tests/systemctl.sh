#!/bin/sh
# For tests of the installation, as systemctl on a node: containerd's service is there and does not run.
[ "$2" != --property=ExecStart ] || echo "argv[]=$(command -v containerd) ;"
