package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
)

// tablesView is what the page of tables shows.
type tablesView struct {
	Filter  string
	Tables  []tableRow
	Hidden  int // tables that the filter hides
	Dropped []client.DroppedTable
	// Partial is why sizes are missing; empty if they are not.
	Partial string
}

// tableRow is a table in the list.
type tableRow struct {
	Name     string
	Owner    string
	Families int
	Usage    *client.TableUsage // nil: unknown
	Rates    rateTexts
}

// tablesPage lists tables.
func tablesPage(ctx context.Context, q *query) (*content, error) {
	schemas, err := q.Tables().List(ctx)
	if err != nil {
		return nil, err
	}
	x := &tablesView{Filter: q.r.URL.Query().Get("q")}
	usage, err := q.Tables().Usage(ctx, "")
	if err != nil {
		usage, x.Partial = &client.Usage{}, err.Error()
	}
	rates := ratesOf(ctx, q.Client)
	for _, s := range schemas {
		if !strings.Contains(s.Name, x.Filter) {
			x.Hidden++
			continue
		}
		row := tableRow{Name: s.Name, Families: len(s.Families), Rates: rates.ofTable(s.Name, s.ID)}
		if at := slices.IndexFunc(usage.Tables, func(u client.TableUsage) bool { return u.Name == s.Name }); at >= 0 {
			row.Usage, row.Owner = &usage.Tables[at], usage.Tables[at].Owner
		}
		x.Tables = append(x.Tables, row)
	}
	slices.SortFunc(x.Tables, func(a, b tableRow) int { return strings.Compare(a.Name, b.Name) })
	if x.Dropped, err = q.Tables().Dropped(ctx); err != nil && !errors.Is(err, client.ErrPermission) {
		return nil, err
	}
	return &content{Title: "Tables", Template: "tables.html", Section: "Tables", Data: x}, nil
}

// tabletsPageMax is the number of tablets of one page.
const tabletsPageMax = 100

// tableView is what the page of a table shows.
type tableView struct {
	Name     string
	Schema   *table.Schema
	Usage    *client.TableUsage // nil: unknown
	Families []familyRow
	Spread   []spreadRow
	Total    int64 // bytes of all tablets
	Hidden   bool  // sizes are hidden
	Tablets  []tabletRow
	Nodes    []string // names that a tablet can move to
	All      int
	First    int    // index of the first tablet shown
	Here     string // query of the page; empty: of the first one
	Previous string // address of the page before; empty: there is none
	Next     string
	System   bool // METADATA
	Rates    rateTexts
}

// familyRow is a family with its size.
type familyRow struct {
	table.Family
	GCText string
	Usage  *client.FamilyUsage
}

// spreadRow is a node with its share of a table.
type spreadRow struct {
	Node    string
	Tablets int64
	Bytes   int64
	Bar     bar
}

// tabletRow is a tablet in the list.
type tabletRow struct {
	client.TabletInfo
	Bytes, Files, Entries int64
	Bar                   bar // beside the largest of the table
	Last                  bool
	Rates                 rateTexts
}

// tablePage shows a table, and a page of its tablets.
func tablePage(ctx context.Context, q *query) (*content, error) {
	name := q.r.PathValue("table")
	info, err := q.Tables().Describe(ctx, name)
	if err != nil {
		return nil, err
	}
	x := &tableView{Name: name, Schema: info.Schema, Hidden: info.SizesHidden, All: len(info.Tablets), System: name == metadata.Name}
	if usage, err := q.Tables().Usage(ctx, name); err == nil && len(usage.Tables) == 1 {
		x.Usage = &usage.Tables[0]
	}
	x.addFamilies()
	x.addTablets(info, q.r.URL.Query().Get("from"))
	x.addRates(ratesOf(ctx, q.Client))
	if nodes, err := q.Nodes().List(ctx); err == nil {
		for i := range nodes {
			if nodes[i].State == api.NodeAlive && !nodes[i].Draining {
				x.Nodes = append(x.Nodes, cmp.Or(nodes[i].Name, nodes[i].ID))
			}
		}
		slices.Sort(x.Nodes)
	}
	return &content{Title: "Table " + name, Template: "table.html", Section: "Tables", Data: x}, nil
}

func (x *tableView) addFamilies() {
	for _, f := range x.Schema.Families {
		row := familyRow{Family: f, GCText: f.GC.String()}
		if x.Usage != nil {
			if at := slices.IndexFunc(x.Usage.Families, func(u client.FamilyUsage) bool { return u.Name == f.Name }); at >= 0 {
				row.Usage = &x.Usage.Families[at]
			}
		}
		x.Families = append(x.Families, row)
	}
}

// addTablets adds the share of each node, and the tablets from the one at an index on.
func (x *tableView) addTablets(info *client.TableInfo, from string) {
	largest := int64(1)
	all := make([]tabletRow, len(info.Tablets))
	for i := range info.Tablets {
		row := tabletRow{TabletInfo: info.Tablets[i], Last: i == len(info.Tablets)-1}
		row.Bytes = row.MemtableBytes
		for _, g := range row.Groups {
			row.Bytes, row.Files, row.Entries = row.Bytes+g.Bytes, row.Files+g.Files, row.Entries+g.Entries
		}
		x.Total, largest = x.Total+row.Bytes, max(largest, row.Bytes)
		all[i] = row
		x.addSpread(&row)
	}
	for i := range x.Spread {
		s := &x.Spread[i]
		s.Bar = bar{Percent: int(100 * s.Tablets / int64(max(x.All, 1))), Level: "good"}
	}
	slices.SortFunc(x.Spread, func(a, b spreadRow) int { return strings.Compare(a.Node, b.Node) })
	x.First, _ = strconv.Atoi(from)
	x.First = min(max(x.First, 0), max(len(all)-1, 0))
	x.Tablets = all[x.First:min(x.First+tabletsPageMax, len(all))]
	for i := range x.Tablets {
		x.Tablets[i].Bar = bar{Percent: int(100 * x.Tablets[i].Bytes / largest), Level: "good"}
	}
	if x.First > 0 {
		x.Here = "?from=" + strconv.Itoa(x.First)
		x.Previous = "?from=" + strconv.Itoa(max(x.First-tabletsPageMax, 0))
	}
	if end := x.First + len(x.Tablets); end < len(all) {
		x.Next = "?from=" + strconv.Itoa(end)
	}
}

// addRates adds the rates of the table, and of the tablets that are shown.
func (x *tableView) addRates(r *rates) {
	if x.System {
		r = nil // only tables of users are counted
	}
	x.Rates = r.ofTable(x.Name, x.Schema.ID)
	for i := range x.Tablets {
		x.Tablets[i].Rates = r.ofTablet(x.Name, x.Schema.ID, x.Tablets[i].End)
	}
}

func (x *tableView) addSpread(t *tabletRow) {
	at := slices.IndexFunc(x.Spread, func(s spreadRow) bool { return s.Node == t.Node })
	if at < 0 {
		at = len(x.Spread)
		x.Spread = append(x.Spread, spreadRow{Node: t.Node})
	}
	x.Spread[at].Tablets++
	x.Spread[at].Bytes += t.Bytes
}

// End returns the index after the last tablet that is shown.
func (x *tableView) End() int { return x.First + len(x.Tablets) }
