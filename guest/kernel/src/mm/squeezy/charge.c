// SPDX-License-Identifier: GPL-2.0-only
/*
 * Charge kernel memory to the instance that it is for.
 *
 * memory.max is all that keeps an instance from taking ordinary memory from
 * everybody else, and stock Linux charges only what a call site says it should. So
 * the rule is the other way round for members of partitions: what the slab
 * allocator and get_free_pages() give them is charged, whatever it is. What an
 * interrupt makes for a socket is charged to whom the socket is.
 */
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched/mm.h>
#include <linux/skbuff.h>
#include <linux/squeezy_hooks.h>
#include <net/sock.h>

static bool squeezy_is_member(void)
{
	return in_task() && current->mm && current->mm->squeezy;
}

/**
 * __squeezy_kernel_gfp - charge kernel memory to the process it is for
 * @gfp: GFP flags of its allocation
 *
 * Interrupts allocate for whoever happens to run. Nor is what the slab allocator
 * has to have in order to charge objects charged in turn, without end.
 *
 * Return: the flags to allocate it with.
 */
gfp_t __squeezy_kernel_gfp(gfp_t gfp)
{
	if (squeezy_is_member() && !(gfp & __GFP_NO_OBJ_EXT))
		gfp |= __GFP_ACCOUNT;
	return gfp;
}

/**
 * __squeezy_charge_begin - charge what is allocated from now on as a socket is
 * @sk: the socket
 *
 * Return: what __squeezy_charge_end() needs.
 */
struct mem_cgroup *__squeezy_charge_begin(const struct sock *sk)
{
	return set_active_memcg(mem_cgroup_from_sk(sk));
}

/**
 * __squeezy_charge_end - charge as before
 * @old: what __squeezy_charge_begin() returned
 */
void __squeezy_charge_end(struct mem_cgroup *old)
{
	set_active_memcg(old);
}

/**
 * __squeezy_charge_skb - have a buffer charged that an interrupt made
 * @sk: the socket that it is for
 * @skb: the buffer, in whose place a copy is put
 *
 * Return: false if there is no memory, and the buffer is as it was.
 */
bool __squeezy_charge_skb(struct sock *sk, struct sk_buff **skb)
{
	struct mem_cgroup *old, *memcg = mem_cgroup_from_sk(sk);
	struct sk_buff *copy;

	if (in_task() || !memcg)
		return true;
	old = set_active_memcg(memcg);
	copy = skb_copy(*skb, GFP_ATOMIC | __GFP_ACCOUNT);
	set_active_memcg(old);
	if (!copy)
		return false;
	consume_skb(*skb);
	*skb = copy;
	return true;
}

/**
 * __squeezy_refuse_lock - is this a file that members must not lock?
 * @inode: what the lock would be on
 */
bool __squeezy_refuse_lock(const struct inode *inode)
{
	return squeezy_is_member() &&
	       inode->i_sb->s_magic == ANON_INODE_FS_MAGIC;
}
