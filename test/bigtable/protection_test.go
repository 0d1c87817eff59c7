package bigtable

import (
	"errors"
	"testing"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
)

// TestGoDeletionProtection: a table that Google's Go client protects is not dropped by any client, nor are its families, until the protection
// is removed.
func TestGoDeletionProtection(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	own, err := client.Open(t.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := admin.CreateTableFromConf(t.Context(), &bigtable.TableConf{TableID: table, DeletionProtection: bigtable.Protected, Families: map[string]bigtable.GCPolicy{"f": bigtable.NoGcPolicy()}}); err != nil {
		t.Fatal(err)
	}
	info, err := admin.TableInfo(t.Context(), table)
	if err != nil || info.DeletionProtection != bigtable.Protected {
		t.Errorf("%+v, %v", info, err)
	}
	for i, err := range []error{admin.DeleteTable(t.Context(), table), admin.DeleteColumnFamily(t.Context(), table, "f")} {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("call %d: %v", i, err)
		}
	}
	_, family := own.Tables().DropFamily(t.Context(), table, "f")
	for i, err := range []error{own.Tables().Drop(t.Context(), table), family} {
		if !errors.Is(err, client.ErrProtected) {
			t.Errorf("call %d of the own client: %v", i, err)
		}
	}
	if err := admin.UpdateTableWithDeletionProtection(t.Context(), table, bigtable.Unprotected); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(admin.DeleteColumnFamily(t.Context(), table, "f"), admin.DeleteTable(t.Context(), table)); err != nil {
		t.Error(err)
	}
}
