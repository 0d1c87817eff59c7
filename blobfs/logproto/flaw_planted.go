//go:build plantedbugs

package logproto

import bugs "github.com/steledb/stele/internal/planted"

// bugOf is the planted bug that is a flaw, if one is.
var bugOf = [flawCount]bugs.Bug{
	flawAckSome:          bugs.AckOneReplica,
	flawCutShort:         bugs.SealTooShort,
	flawRecoverUnclaimed: bugs.RecoveryUnclaimed,
	flawIgnoreStandby:    bugs.StandbyIgnored,
}

func planted(f flaw) bool { return theFlaw == f || bugOf[f] != "" && bugs.On(bugOf[f]) }
