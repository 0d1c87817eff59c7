package reply

import (
	"errors"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
)

// RefusesWrites reports whether err, with which a write was refused after waiting, would also be the result of the next write.
func RefusesWrites(err error) bool {
	return errors.Is(err, api.ErrOverloaded) || errors.Is(err, api.ErrDiskFull) || errors.Is(err, blobfs.ErrDiskFull)
}
