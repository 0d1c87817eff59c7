package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Nearest returns the name with the smallest edit distance to word, for suggestions. It returns "" if
// more than half of the letters would have to change.
func Nearest(word string, names []string) string {
	best, fewest := "", len(word)/2+1
	for _, name := range names {
		if d := distance(word, name); d < fewest {
			best, fewest = name, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
