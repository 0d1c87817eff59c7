package bigtable

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

//go:embed quickstart/*.txt
var programs embed.FS

// Languages are those with a quickstart program: languages, and libraries of Java that use Google's client.
var Languages = []string{"beam", "go", "hbase", "java", "node", "python"}

// Quickstart returns the program in a language. Its first lines state how to run it.
func Quickstart(language string) (string, error) {
	if !slices.Contains(Languages, language) {
		return "", cli.Usagef("", "language %q is none of %s", language, strings.Join(Languages, ", "))
	}
	b, err := programs.ReadFile("quickstart/" + language + ".txt")
	return string(b), err
}

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "bigtable",
		Short: "Use clients of Google's Cloud Bigtable",
		Example: `  stele bigtable quickstart python > quickstart.py
  stele bigtable profile list`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(quickstartCommand(a), profileCommand(a))
	return []*cobra.Command{cmd}
}

const quickstartLong = `Print a program that creates a table, writes rows and reads them, with Google's client in
a language: go, java, node or python; or in Java with the API of HBase, or as pipelines
of Apache Beam. Its first lines state how to run it. It needs a node for development:

  stele serve --dev`

func quickstartCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "quickstart " + strings.Join(Languages, "|"),
		Short: "Print a program with Google's client",
		Long:  quickstartLong,
		Example: `  stele bigtable quickstart go > main.go
  stele bigtable quickstart python > quickstart.py`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: Languages,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := Quickstart(args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(struct {
					Language string `json:"language"`
					Program  string `json:"program"`
				}{args[0], text})
			}
			_, err = fmt.Fprint(a.Out, text)
			return err
		},
	}
}
