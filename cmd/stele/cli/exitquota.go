package cli

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/text"
)

// faultOfQuota maps errors about quotas.
func faultOfQuota(err error) *Fault {
	var used *client.QuotaError
	switch {
	case errors.As(err, &used) && used.Bytes:
		return &Fault{Code: exitQuota, Hint: `"stele usage" shows what uses the space; deletions are accepted, and free space when they are compacted`}
	case errors.As(err, &used):
		return &Fault{Code: exitQuota, Hint: fmt.Sprintf(`retry in %s; "stele quota list" shows the quotas`, text.Duration(used.RetryAfter))}
	case errors.Is(err, client.ErrNoQuota):
		return &Fault{Code: ExitNotFound, Hint: `"stele quota list" shows the quotas`}
	}
	return nil
}
