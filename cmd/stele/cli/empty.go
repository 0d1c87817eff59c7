package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeEmpty is the annotation of flags that accept an empty string.
const mayBeEmpty = "stele_may_be_empty"

// AllowEmpty makes the named flags accept an empty string.
func AllowEmpty(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, mayBeEmpty, []string{"true"}); err != nil {
			panic("BUG: " + err.Error())
		}
	}
}

// rejectEmptyFlags returns an error if a string flag was given an empty string, as by
// --until "$UNSET". Otherwise a flag that narrows a command would be ignored, and the command would
// read, delete or revoke everything.
func rejectEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Annotations[mayBeEmpty] == nil && isEmptyText(f.Value) {
			err = Usagef("give it a value or omit it", "--%s is empty", f.Name)
		}
	})
	return err
}

// rejectEmptyArguments returns an error if a name is an empty string, as by
// acl grant ann read "$UNSET". Otherwise the argument would be ignored.
func rejectEmptyArguments(cmd *cobra.Command, args []string) error {
	for i, word := range strings.Fields(cmd.Use)[1:] {
		if i >= len(args) {
			break
		}
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "[")
		switch name {
		case "TABLE", "ROW", "AT-ROW", "FAMILY", "USER", "NAME", "NODE", "ID", "PATH", "FILE":
			if args[i] == "" {
				return Usagef("", "%s is empty", name)
			}
		}
	}
	return nil
}

// isEmptyText reports whether v is an empty string, an empty list, or a list with an empty string.
func isEmptyText(v pflag.Value) bool {
	if list, ok := v.(pflag.SliceValue); ok {
		all := list.GetSlice()
		return len(all) == 0 || slices.Contains(all, "")
	}
	return v.Type() == "string" && v.String() == ""
}
