//go:build !plantedbugs

package logproto

func planted(f flaw) bool { return theFlaw == f }
