//go:build plantedbugs

package logproto

import bugs "github.com/steledb/stele/internal/planted"

func init() {
	if bugs.On(bugs.AckOneReplica) {
		theFlaw = flawAckSome
	}
}
