package access

import (
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
)

func TestUsageJSON(t *testing.T) {
	u := clitest.Fill(&client.Usage{})
	u.Tables = append(u.Tables, client.TableUsage{Name: "empty"})
	clitest.Golden(t, "usage", func(a *cli.App) error { return printUsage(a, clitest.Received(t, u)) })
	u = &client.Usage{Tables: []client.TableUsage{{}}}
	clitest.Golden(t, "usage-empty", func(a *cli.App) error { return printUsage(a, clitest.Received(t, u)) })
}

func TestAuthorityJSON(t *testing.T) {
	for name, s := range map[string]*client.AuthorityStatus{"authority": clitest.Fill(&client.AuthorityStatus{}), "authority-empty": {}} {
		clitest.Golden(t, name, func(a *cli.App) error { return printAuthority(a, clitest.Received(t, s)) })
	}
}
