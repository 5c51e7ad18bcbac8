#!/bin/sh
# fetch.sh FOLDER SET...: fetch sets of jars into a folder of pyspark's jars, by checksum.
#
# SET.xml beside this file says which, SET.sha256 what they are: a jar that is missing or another one
# ends it, and a jar without a line does not reach the folder.  Behind a mirror, the build's secret
# `ivysettings.xml` names its address.
set -eu
settings=/run/secrets/ivysettings.xml
[ -f "$settings" ] || settings=
here=$(cd "$(dirname "$0")" && pwd)
target=$(cd "$1" && pwd)
shift
fetched=$(mktemp -d)
cd "$fetched"
for set in "$@"; do
    java -jar "$target"/ivy-*.jar -warn ${settings:+-settings "$settings"} \
        -ivy "$here/$set.xml" -confs "$set" -types jar bundle \
        -retrieve "$fetched/[artifact]-[revision].[ext]"
    sha256sum --check --strict --quiet "$here/$set.sha256"
    sed 's/^[0-9a-f]*  //' "$here/$set.sha256" | while read -r jar; do mv "$jar" "$target"; done
done
rm -r "$fetched"
