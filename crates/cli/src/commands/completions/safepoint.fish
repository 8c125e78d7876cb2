# Completion of safepoint for fish: safepoint completions fish | source
function __safepoint_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (command safepoint __complete -- $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            printf '%s\n' $line
        end
    end
end
complete -c safepoint -f -k -a '(__safepoint_complete)'
