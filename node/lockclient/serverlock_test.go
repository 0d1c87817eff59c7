package lockclient

import (
	"errors"
	"testing"
)

// A lock that the session of the node's previous run still holds, because the lock service could not end it, is waited for. Only a holder at
// another address is another process.
func TestHeldError(t *testing.T) {
	for holder, want := range map[string]bool{"10.0.0.1:7106": false, "10.0.0.2:7106": true, "": true} {
		if err := heldError(instance{RPC: holder}, "n1", "10.0.0.1:7106"); errors.Is(err, errOtherInstance) != want {
			t.Errorf("holder at %q: %v", holder, err)
		}
	}
}
