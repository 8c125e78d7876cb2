# Completion of safepoint for bash: source <(safepoint completions bash)
_safepoint() {
    local IFS=$'\n' line current=${COMP_WORDS[COMP_CWORD]} files=
    local -a found=() described=()
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            files=1
        elif [[ -n $line ]]; then
            found+=("${line%%$'\t'*}")
            [[ $line == *$'\t'* ]] && described+=("${line%%$'\t'*}  (${line#*$'\t'})") || described+=("$line")
        fi
    done < <(command safepoint __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=("${found[@]}")
    if [[ -n $files ]]; then
        local -a paths=()
        while IFS= read -r line; do
            paths+=("$line")
        done < <(compgen -f -- "$current" | LC_ALL=C sort)
        if ((${#paths[@]} > 0)); then
            COMPREPLY+=("${paths[@]}")
            compopt -o filenames 2>/dev/null
            return 0
        fi
    fi
    # Descriptions are for the list of choices only; menu completion inserts what is in it.
    if ((${#found[@]} > 1)) && [[ ${COMP_TYPE:-9} != 37 && ${COMP_TYPE:-9} != 42 ]]; then
        COMPREPLY=("${described[@]}")
    fi
    return 0
}
complete -o nosort -F _safepoint safepoint 2>/dev/null || complete -F _safepoint safepoint
