# Runs pods from manifests of Kubernetes through CRI, where there is no kubelet; to be sourced after cri-common.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # cri-common.sh has set it

declare -A pods addresses containers
# run_pod NAME MANIFEST: a pod of this name; `pods` and `addresses` get its id and address, `containers` the ids of its
# containers, by the pod's name and theirs.
run_pod() {
	local said=$work/pods handler names name
	mkdir -p "$said"
	handler=$(python3 "$here/as-kubelet.py" "$1" "$said" <"$2")
	pods[$1]=$(crictl runp --runtime "$handler" "$said/$1.json")
	addresses[$1]=$(crictl inspectp -o go-template --template '{{.status.network.ip}}' "${pods[$1]}")
	names=$(python3 "$here/as-kubelet.py" "$1" "$said" "${addresses[$1]}" <"$2")
	for name in $names; do
		containers[$1/$name]=$(crictl create "${pods[$1]}" "$said/$1-$name.json" "$said/$1.json")
		crictl start "${containers[$1/$name]}" >/dev/null
	done
}
# remove_pod NAME: at once.
remove_pod() {
	crictl stopp "${pods[$1]}" >/dev/null
	crictl rmp "${pods[$1]}" >/dev/null
}
# what TEMPLATE POD/CONTAINER: a part of a container's status.
what() {
	crictl inspect -o go-template --template "{{.status.$1}}" "${containers[$2]}"
}
# memory_is_back COUNT: whether so many pods have given back their memory.
memory_is_back() {
	[ "$(log | reclaims)" = "$1" ]
}
