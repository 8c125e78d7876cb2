#compdef safepoint
# Completion of safepoint for zsh: source <(safepoint completions zsh), or as _safepoint in a folder of $fpath.
_safepoint() {
    local line files
    local -a described plain
    for line in "${(@f)$(command safepoint __complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            :files) files=1 ;;
            *$'\t'*) described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            ?*) plain+=("$line") ;;
        esac
    done
    local ret=1
    (( ${#described} )) && _describe -V value described && ret=0
    (( ${#plain} )) && compadd -a plain && ret=0
    [[ -n $files ]] && _files && ret=0
    return ret
}
if [[ ${funcstack[1]-} == _safepoint ]]; then
    _safepoint "$@"
elif (( ${+functions[compdef]} )); then
    compdef _safepoint safepoint
fi
