package reply

import (
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/client/api"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// A namespace that is full refuses the name of a blob as a limit, with its name: nothing is stored then.
func TestFullNamespaceIsALimit(t *testing.T) {
	t.Parallel()
	err := api.FromRPC(ToAPI(fmt.Errorf("set /blobs/x: %w", &metaapi.TooLargeError{What: metaapi.LimitBytes, Limit: 5, Got: 6})))
	var limit *table.LimitError
	if !errors.As(err, &limit) || limit.What != "lock service: namespace" || limit.Limit != 5 || limit.Got != 6 {
		t.Errorf("a full namespace: %v", err)
	}
}
