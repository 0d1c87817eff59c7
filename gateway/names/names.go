package names

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/steledb/stele/table"
)

// ErrBadName means that a resource name is malformed: an *Error.
var ErrBadName = errors.New("bad resource name")

// Error reports why a resource name, or a part of one, is invalid.
type Error struct {
	// What is the kind of name, such as "table name".
	What, Name, Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s %.200q %s", e.What, e.Name, e.Reason) }

// Is makes the error match ErrBadName.
func (e *Error) Is(target error) bool { return target == ErrBadName }

const (
	// ClusterID is the id of the only cluster of each instance.
	ClusterID = "stele"
	// NoZone is the zone of nodes that have none.
	NoZone = "local"
)

// partBytesMax bounds an id in a name, except those of tables, which have their own limits.
const partBytesMax = 64

// Instance is the name of an instance: projects/P/instances/I.
type Instance struct{ Project, ID string }

// String returns the resource name.
func (i Instance) String() string { return "projects/" + i.Project + "/instances/" + i.ID }

// Table returns the name of a table of the instance.
func (i Instance) Table(id string) Table { return Table{i, id} }

// Cluster returns the name of a cluster of the instance.
func (i Instance) Cluster(id string) string { return i.String() + "/clusters/" + id }

// AppProfile returns the name of an app profile of the instance.
func (i Instance) AppProfile(id string) string { return i.String() + "/appProfiles/" + id }

// Table is the name of a table: projects/P/instances/I/tables/T.
type Table struct {
	Instance Instance
	ID       string
}

// String returns the resource name.
func (t Table) String() string { return t.Instance.String() + "/tables/" + t.ID }

// View returns the name of an authorized view of the table.
func (t Table) View(id string) View { return View{t, id} }

// View is the name of an authorized view of a table: projects/P/instances/I/tables/T/authorizedViews/V.
type View struct {
	Table Table
	ID    string
}

// String returns the resource name.
func (v View) String() string { return v.Table.String() + "/authorizedViews/" + v.ID }

// SchemaBundle returns the name of a schema bundle of the table.
func (t Table) SchemaBundle(id string) SchemaBundle { return SchemaBundle{t, id} }

// SchemaBundle is the name of a schema bundle of a table: projects/P/instances/I/tables/T/schemaBundles/S.
type SchemaBundle struct {
	Table Table
	ID    string
}

// String returns the resource name.
func (b SchemaBundle) String() string { return b.Table.String() + "/schemaBundles/" + b.ID }

// Backup is the name of a backup: projects/P/instances/I/clusters/C/backups/B.
type Backup struct {
	Instance    Instance
	Cluster, ID string
}

// String returns the resource name.
func (b Backup) String() string { return b.Instance.Cluster(b.Cluster) + "/backups/" + b.ID }

// ParseProject parses projects/P and returns P. Errors: ErrBadName.
func ParseProject(name string) (string, error) {
	parts, err := split("project name", name, "projects")
	if err != nil {
		return "", err
	}
	return parts[0], nil
}

// ParseInstance parses the name of an instance. Errors: ErrBadName.
func ParseInstance(name string) (Instance, error) {
	parts, err := split("instance name", name, "projects", "instances")
	if err != nil {
		return Instance{}, err
	}
	return Instance{parts[0], parts[1]}, nil
}

// ParseTable parses the name of a table. It does not check the limits of the table's id: a table
// with a longer id does not exist. Errors: ErrBadName.
func ParseTable(name string) (Table, error) {
	parts, err := split("table name", name, "projects", "instances", "tables")
	if err != nil {
		return Table{}, err
	}
	return Table{Instance{parts[0], parts[1]}, parts[2]}, nil
}

// ParseView parses the name of an authorized view. It does not check the limits of ids. Errors: ErrBadName.
func ParseView(name string) (View, error) {
	parts, err := split("authorized view name", name, "projects", "instances", "tables", "authorizedViews")
	if err != nil {
		return View{}, err
	}
	return Instance{parts[0], parts[1]}.Table(parts[2]).View(parts[3]), nil
}

// ParseSchemaBundle parses the name of a schema bundle. It does not check the limits of ids. Errors: ErrBadName.
func ParseSchemaBundle(name string) (SchemaBundle, error) {
	parts, err := split("schema bundle name", name, "projects", "instances", "tables", "schemaBundles")
	if err != nil {
		return SchemaBundle{}, err
	}
	return Instance{parts[0], parts[1]}.Table(parts[2]).SchemaBundle(parts[3]), nil
}

// ParseTableOrView parses the name of an authorized view, or that of a table, which it returns as one of a view with an empty id. Errors: ErrBadName.
func ParseTableOrView(name string) (View, error) {
	if strings.Count(name, "/") > 5 {
		return ParseView(name)
	}
	t, err := ParseTable(name)
	return View{Table: t}, err
}

// ParseCluster parses the name of a cluster: projects/P/instances/I/clusters/C. Errors: ErrBadName.
func ParseCluster(name string) (Instance, string, error) {
	return child("cluster name", name, "clusters")
}

// IsBackup reports whether a name is that of something in a cluster, as a backup is, and not in a table.
func IsBackup(name string) bool {
	words := strings.SplitN(name, "/", 6)
	return len(words) == 6 && words[4] == "clusters"
}

// ParseBackup parses the name of a backup. It does not check whether the cluster exists. Errors: ErrBadName.
func ParseBackup(name string) (Backup, error) {
	parts, err := split("backup name", name, "projects", "instances", "clusters", "backups")
	if err != nil {
		return Backup{}, err
	}
	return Backup{Instance{parts[0], parts[1]}, parts[2], parts[3]}, nil
}

// ParseAppProfile parses the name of an app profile: projects/P/instances/I/appProfiles/A. Errors:
// ErrBadName.
func ParseAppProfile(name string) (Instance, string, error) {
	return child("app profile name", name, "appProfiles")
}

// child parses the name of a resource in a collection of an instance.
func child(what, name, collection string) (Instance, string, error) {
	parts, err := split(what, name, "projects", "instances", collection)
	if err != nil {
		return Instance{}, "", err
	}
	return Instance{parts[0], parts[1]}, parts[2], nil
}

// split splits a name of alternating collections and ids, and returns the ids.
func split(what, name string, collections ...string) ([]string, error) {
	want := strings.Join(collections, "/*/") + "/*"
	words := strings.SplitN(name, "/", 2*len(collections)+1)
	if len(words) != 2*len(collections) {
		return nil, &Error{What: what, Name: name, Reason: "is malformed: want " + want}
	}
	ids := make([]string, 0, len(collections))
	for i, collection := range collections {
		id := words[2*i+1]
		if words[2*i] != collection || id == "" {
			return nil, &Error{What: what, Name: name, Reason: "is malformed: want " + want}
		}
		if len(id) > partBytesMax || !utf8.ValidString(id) {
			return nil, &Error{What: what, Name: name, Reason: fmt.Sprintf("has an id that is longer than %d bytes, or not UTF-8", partBytesMax)}
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Limits are the limits of new ids. The zero value accepts what the cluster can store.
type Limits struct {
	// Strict accepts only what Google's service accepts.
	Strict bool
}

// strictIDBytes is the limit of Google's service for ids of tables, authorized views, schema bundles and app profiles.
const strictIDBytes = 50

// CheckTableID checks the id of a new table. Errors: ErrBadName, table.ErrBadName, table.ErrLimit.
func (l Limits) CheckTableID(id string) error {
	if err := (*table.Limits)(nil).CheckTableName(id); err != nil {
		return err
	}
	return l.check("table id", id)
}

// CheckViewID checks the id of a new authorized view as Google's service does. The schema of the table checks it, too. Errors: ErrBadName.
func (l Limits) CheckViewID(id string) error { return l.check("authorized view id", id) }

// CheckSchemaBundleID checks the id of a new schema bundle. Errors: ErrBadName, table.ErrBadName, table.ErrLimit.
func (l Limits) CheckSchemaBundleID(id string) error {
	if err := (*table.Limits)(nil).CheckName("schema bundle id", id); err != nil {
		return err
	}
	return l.check("schema bundle id", id)
}

// CheckAppProfileID checks the id of a new app profile. Errors: ErrBadName, table.ErrBadName, table.ErrLimit.
func (l Limits) CheckAppProfileID(id string) error {
	if err := (*table.Limits)(nil).CheckName("app profile id", id); err != nil {
		return err
	}
	return l.check("app profile id", id)
}

func (l Limits) check(what, id string) error {
	if !l.Strict || id == "" {
		return nil
	}
	if len(id) > strictIDBytes {
		return &Error{What: what, Name: id, Reason: fmt.Sprintf("is longer than %d bytes", strictIDBytes)}
	}
	if id[0] == '-' || id[0] == '.' { // [_a-zA-Z0-9][-_.a-zA-Z0-9]*
		return &Error{What: what, Name: id, Reason: "begins with a character other than a-z A-Z 0-9 _"}
	}
	return nil
}
