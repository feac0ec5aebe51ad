// SPDX-License-Identifier: MIT

package watchtest

var suite = []group{
	{"Mode", []testCase{
		{"Level", on(level)}, {"Edge", on(edge)}, {"OneShot", on(oneShot)},
		{"Initial", on(initial)}, {"Change", on(changeOfMode)}, {"Drained", on(drained)},
		{"Partial", on(partial)},
	}},
	{"Events", []testCase{
		{"Asked", on(asked)}, {"HangUp", on(hangUp)}, {"PeerHangUp", on(peerHangUp)}, {"Priority", on(priority)},
		{"Error", on(brokenPipe)}, {"Unasked", on(unrequested)}, {"Value", on(value)}, {"Modify", on(modify)},
	}},
	{"Errors", []testCase{
		{"Twice", on(twice)}, {"Unknown", on(unknown)}, {"NotOpen", on(notOpen)},
		{"NotPollable", on(notPollable)}, {"Invalid", on(invalid)}, {"Closed", on(closed)},
	}},
	{"Kinds", kindCases()},
	{"Order", []testCase{
		{"WritersFirst", on(writersFirst)}, {"Arrival", on(arrival)}, {"Once", on(once)},
	}},
	{"Wait", []testCase{
		{"Timeout", on(timeouts)}, {"Signals", on(signals)}, {"Wake", on(wake)}, {"WakeBefore", on(wakeBefore)},
		{"ChangeMeanwhile", on(changeMeanwhile)}, {"RemoveMeanwhile", on(removeMeanwhile)},
		{"TwiceWithoutDispatch", on(waitTwice)}, {"OtherThreads", otherThreads},
	}},
	{"Close", []testCase{
		{"WhileWaiting", closeWhileWaiting}, {"InCallback", closeInCallback}, {"WakeMeanwhile", wakeWhileClosing},
		{"Releases", closeReleases},
	}},
	{"Remove", []testCase{
		{"Pending", on(removePending)}, {"Neighbours", on(removeNeighbours)}, {"AddInCallback", on(addInCallback)},
		{"Reuse", on(reuse)}, {"ReuseUnremoved", on(reuseUnremoved)}, {"Releases", on(releases)}, {"Race", on(race)},
		{"Duplicates", on(duplicates)},
	}},
	{"Many", []testCase{
		{"AddRemove", on(many)}, {"Overflow", on(overflow)}, {"Fair", on(fair)}, {"Neighbours", on(neighbours)},
	}},
	{"Model", []testCase{{"Seeds", seeds}}},
}
