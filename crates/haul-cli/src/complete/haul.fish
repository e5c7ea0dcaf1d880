# fish completion for haul. It asks haul itself, so that remotes, their paths and jobs complete too.
function __haul_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    haul __complete fish $words "$current" 2>/dev/null
end
complete -c haul -f -a '(__haul_complete)'
