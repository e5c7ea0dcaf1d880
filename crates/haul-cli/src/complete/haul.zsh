#compdef haul
# zsh completion for haul. It asks haul itself, so that remotes, their paths and jobs complete too.
_haul() {
    local -a whole begun
    local candidate
    for candidate in "${(@f)$(haul __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $candidate in
            '') ;;
            *[/:=]) begun+=("$candidate") ;;
            *) whole+=("$candidate") ;;
        esac
    done
    # A path goes on.
    compadd -S '' -a begun
    compadd -a whole
}
if [ "$funcstack[1]" = "_haul" ]; then
    _haul "$@"
else
    compdef _haul haul
fi
