package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
)

// faultOfQuota maps errors about quotas.
func faultOfQuota(err error) *Fault {
	var used *client.QuotaError
	switch {
	case errors.As(err, &used) && used.Bytes:
		return &Fault{Code: exitQuota, Hint: `"stele usage" shows what uses the space; deletions are accepted, and free space when they are compacted`}
	case errors.As(err, &used):
		return &Fault{Code: exitQuota, Hint: fmt.Sprintf(`retry in %v; "stele quota list" shows the quotas`, used.RetryAfter.Round(time.Millisecond))}
	case errors.Is(err, client.ErrNoQuota):
		return &Fault{Code: ExitNotFound, Hint: `"stele quota list" shows the quotas`}
	}
	return nil
}
