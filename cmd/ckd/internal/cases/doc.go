// Package cases holds a policy to inputs whose decision somebody knows: "this input must be deferred, this
// one must not", as a file beside the policy. Inputs are decided by the engine that the daemon decides with.
package cases
