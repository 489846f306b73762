// Command ckd is the uncertainty daemon that sits beside a model server, and
// the tools around it.
package main
