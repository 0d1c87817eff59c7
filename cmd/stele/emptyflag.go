package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeEmpty marks flags for which an empty text is a value of its own.
const mayBeEmpty = "stele_may_be_empty"

// allowEmpty lets the flags of those names be given an empty text.
func allowEmpty(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, mayBeEmpty, []string{"true"}); err != nil {
			panic("BUG: " + err.Error())
		}
	}
}

// rejectEmptyFlags returns an error if a flag of text was given an empty one, as by
// --until "$UNSET". A flag that narrows a command would be as if it were not given:
// the command would read, delete or revoke everything.
func rejectEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Annotations[mayBeEmpty] == nil && isEmptyText(f.Value) {
			err = usagef("give it a value or leave it out", "--%s is empty", f.Name)
		}
	})
	return err
}

// rejectEmptyArguments returns an error if the name of something is an empty text, as by
// acl grant ann read "$UNSET", which would be as if it were not given.
func rejectEmptyArguments(cmd *cobra.Command, args []string) error {
	for i, word := range strings.Fields(cmd.Use)[1:] {
		if i >= len(args) {
			break
		}
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "[")
		switch name {
		case "TABLE", "ROW", "AT-ROW", "FAMILY", "USER", "NAME", "NODE", "ID", "PATH", "FILE":
			if args[i] == "" {
				return usagef("", "%s is empty", name)
			}
		}
	}
	return nil
}

// isEmptyText reports whether v is an empty text, or a list of texts that has an empty
// one or none.
func isEmptyText(v pflag.Value) bool {
	if list, ok := v.(pflag.SliceValue); ok {
		all := list.GetSlice()
		return len(all) == 0 || slices.Contains(all, "")
	}
	return v.Type() == "string" && v.String() == ""
}
