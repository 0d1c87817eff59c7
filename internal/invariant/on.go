//go:build faketime || plantedbugs || race

package invariant

// On reports whether checks that cost more than a comparison are compiled in.
const On = true
