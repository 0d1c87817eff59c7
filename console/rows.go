package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/table"
)

const (
	// rowsPageMax is the number of rows of one page, rowBytesMax the size of one row that is read, and cellsShown the number of its cells that
	// are shown.
	rowsPageMax = 25
	rowBytesMax = 256 << 10
	cellsShown  = 100
	// versionsMax bounds the versions of a column that can be asked for.
	versionsMax = 20
)

// rowsView is what the page of rows shows.
type rowsView struct {
	Table                 string
	Key, Prefix, Start    string // as the form has them
	Columns               string
	Versions              int
	As                    string // the decoder of values
	Decoders              []string
	Rows                  []rowView
	Problem               string // why rows are missing
	Next                  string // address of the page after; empty: there is none
	VersionsMax, PageRows int
}

// rowView is a row that is shown.
type rowView struct {
	Key   string
	Cells []cellView
	More  int // cells that are not shown
}

// cellView is a cell that is shown.
type cellView struct {
	Family, Qualifier, Time string
	Value                   value
	Repeated                bool // an older version of the cell above
	Address                 string
	Versions                string // address of the page of its versions
	HTML                    bool   // it may be HTML
}

// rowsPage shows rows of a table: one by its key, those with a prefix, or those from a key on.
func rowsPage(ctx context.Context, q *query) (*content, error) {
	x, err := rowsOf(q.r.URL.Query(), q.r.PathValue("table"))
	if err != nil {
		return nil, err
	}
	opts := []client.ScanOption{client.Limit(rowsPageMax + 1), client.Versions(x.Versions), client.RowBytesMax(rowBytesMax), client.BatchRows(rowsPageMax + 1), client.BatchBytes(1 << 20)}
	limits, err := x.scanOptions()
	if err != nil {
		return nil, err
	}
	s := q.Table(x.Table).Scan(ctx, append(opts, limits...)...)
	defer s.Close()
	for s.Next() {
		if len(x.Rows) == rowsPageMax {
			x.Next = x.after(string(s.Row().Key))
			break
		}
		x.add(s.Row())
	}
	switch err := s.Err(); {
	case errors.Is(err, client.ErrNoTable), errors.Is(err, client.ErrPermission):
		return nil, err
	case err != nil:
		x.Problem = err.Error()
	}
	return &content{Title: "Rows of " + x.Table, Template: "rows.html", Section: "Tables", Data: x, Static: true}, nil
}

// rowsOf parses the form.
func rowsOf(form url.Values, tableName string) (*rowsView, error) {
	x := &rowsView{Table: tableName, Key: form.Get("key"), Prefix: form.Get("prefix"), Start: form.Get("start"), Columns: form.Get("columns"), As: form.Get("as"),
		Versions: 1, Decoders: decoderNames(), VersionsMax: versionsMax, PageRows: rowsPageMax}
	if x.As == "" {
		x.As = decodeAuto
	}
	if v := form.Get("versions"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > versionsMax {
			return nil, &pageError{http.StatusBadRequest, "Versions must be a number from 1 to " + strconv.Itoa(versionsMax) + "."}
		}
		x.Versions = n
	}
	if decoderOf(x.As) == nil {
		return nil, &pageError{http.StatusBadRequest, "There is no decoder " + x.As + "."}
	}
	return x, nil
}

// scanOptions returns the rows and columns to read.
func (x *rowsView) scanOptions() (opts []client.ScanOption, err error) {
	unescaped := func(field, s string) string {
		out, e := text.Unescape(s)
		if e != nil {
			err = &pageError{http.StatusBadRequest, field + ": " + e.Error() + `; write \\ for a backslash, \n, \r, \t, or \xNN for any byte.`}
		}
		return out
	}
	switch key, prefix, start := unescaped("Row", x.Key), unescaped("Prefix", x.Prefix), unescaped("From", x.Start); {
	case key != "":
		opts = append(opts, client.RowKeys(key))
	default:
		if prefix != "" {
			opts = append(opts, client.Prefix(prefix))
		}
		if start > prefix {
			opts = append(opts, client.Start(start))
		}
	}
	if columns := unescaped("Columns", x.Columns); columns != "" {
		opts = append(opts, client.ColumnsMatching(columns))
	}
	return opts, err
}

// after returns the address of the page that begins with a row.
func (x *rowsView) after(key string) string {
	form := url.Values{}
	for name, v := range map[string]string{"prefix": x.Prefix, "columns": x.Columns, "as": x.As, "start": text.Escape(key)} {
		if v != "" {
			form.Set(name, v)
		}
	}
	form.Set("versions", strconv.Itoa(x.Versions))
	return "?" + form.Encode()
}

// add adds a row.
func (x *rowsView) add(row *table.Row) {
	r := rowView{Key: text.Bytes(row.Key)}
	decode := decoderOf(x.As)
	for i := range row.Cells {
		if i == cellsShown {
			r.More = len(row.Cells) - i
			break
		}
		c := &row.Cells[i]
		shown := cellView{Family: c.Family, Qualifier: text.Bytes(c.Qualifier), Time: text.Moment(c.Timestamp), Value: decode(c.Value), Address: cellAddress(x.Table, row.Key, c), HTML: looksLikeHTML(c.Value)}
		shown.Versions = versionsAddress(x.Table, r.Key, shown.Family+":"+shown.Qualifier, x.As)
		if i > 0 {
			above := &row.Cells[i-1]
			shown.Repeated = above.Family == c.Family && string(above.Qualifier) == string(c.Qualifier)
		}
		r.Cells = append(r.Cells, shown)
	}
	x.Rows = append(x.Rows, r)
}
