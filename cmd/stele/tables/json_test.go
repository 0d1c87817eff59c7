package tables

import (
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/table"
)

// jsonSchemas returns schemas with all kinds of policies and groups, and a view, and an empty one.
func jsonSchemas(t *testing.T) []*table.Schema {
	full := table.NewSchema("full", 7)
	full.Groups = []table.LocalityGroup{
		{Name: "default"}, {Name: "g", BlockBytes: 8 << 10, Compression: table.CompressionTwoPass, Bloom: table.BloomRow, InMemory: true},
	}
	both, either := table.MaxVersions(3), table.GCPolicy{Kind: table.GCMaxAge, Age: 36 * time.Hour}
	for i, gc := range []table.GCPolicy{{}, both, either, {Kind: table.GCUnion, Rules: []table.GCPolicy{both, either}}} {
		full.Families = append(full.Families, table.Family{Name: string(rune('a' + i)), ID: uint32(i + 1), GC: gc, Group: full.Groups[i%2].Name})
	}
	full.NextFamilyID = 6
	full.Views = []table.View{*table.NewView("v", [][]byte{[]byte("row."), {0xff}},
		table.ViewFamily{Name: "a", Qualifiers: [][]byte{[]byte("q"), {0}}, Prefixes: [][]byte{[]byte("p.")}}, table.ViewFamily{Name: "b", Prefixes: [][]byte{{}}})}
	full.Views[0].ID = 5
	if err := full.Validate(nil); err != nil {
		t.Fatal(err)
	}
	return []*table.Schema{full, table.NewSchema("new", 1)}
}

func TestSchemaJSON(t *testing.T) {
	schemas := jsonSchemas(t)
	clitest.Golden(t, "schemas", func(a *cli.App) error {
		if err := reportSchema(a, schemas[0], "created"); err != nil {
			return err
		}
		return listTables(a, schemas)
	})
	if g := schemas[0].Groups[0]; g != (table.LocalityGroup{Name: "default"}) {
		t.Errorf("the schema was changed: %+v", g)
	}
}

func TestTableJSON(t *testing.T) {
	schemas := jsonSchemas(t)
	tablet := clitest.Fill(&client.TabletInfo{})
	for name, info := range map[string]*client.TableInfo{
		"table":       {Schema: schemas[0], Tablets: []client.TabletInfo{*tablet, {Start: []byte{0xff}}}},
		"table-empty": {Schema: schemas[1], SizesHidden: true},
	} {
		clitest.Golden(t, name, func(a *cli.App) error { return printTable(a, clitest.Received(t, info)) })
	}
}
