package logproto

// A flaw is a mistake that the explorer's test plants, one at a time, to show that the explorer
// finds it. Production code has none.
type flaw uint8

const (
	flawNone flaw = iota
	flawAppendFenced
	flawAppendCut
	flawOpenFenced
	flawFenceBackward
	flawStartAnywhere
	flawGap
	flawCutShort
	flawReadUncut
	flawAckSome
	flawAckAfterSeal
	flawGoOnUnsaved
	flawKeepSent
	flawClaimSame
	flawCutUnsaved
	flawIgnoreStandby
	flawRecoverUnclaimed
	flawCount
)

var theFlaw flaw
